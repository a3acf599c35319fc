#!/usr/bin/env python3
"""Stands for a test that cannot run here: usage: skip.py REASON"""
import sys

print(f"skipped: {sys.argv[1]}")
sys.exit(77)  # meson's number
