"""Durable batch jobs: a queue in a file, processes that work on it, and what they may do."""
