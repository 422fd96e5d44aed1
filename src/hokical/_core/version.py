"""The version, in one place."""

VERSION = "0.4.0"
