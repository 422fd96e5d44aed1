"""The version, in one place."""

VERSION = "0.6.0"
