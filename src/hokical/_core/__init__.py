"""Foundations: checked logits, arrays of any library, row blocks and threads,
storage.
"""
