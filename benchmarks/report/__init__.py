"""From the JSON files of benchmarks to pages and plots in docs/benchmarks."""
