"""Where each millisecond of a job's start and end goes: the kernel's own times, with what is below them, floors."""
