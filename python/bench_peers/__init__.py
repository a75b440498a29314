"""Prefill and the engines a user could pick instead, side by side on this machine: see scripts/bench-peers."""
