"""A job of many hosts as it would really be: a core for each host, a network with latency and loss. Simulated.

Decisions are the real policies', on a real plan; what processors take is measured (costs.py), what the network does is
drawn (network.py), and queues follow from both (core.py, coordinator.py, follower.py). job.py plays one job, limits.py
looks for what breaks first.
"""
