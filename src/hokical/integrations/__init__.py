"""Thin shells around other libraries, imported only when they are used."""
