"""Make the pages and plots in docs/benchmarks from the JSON files of benchmarks."""
