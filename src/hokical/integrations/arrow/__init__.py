"""Predictions for Arrow tables (extra `parquet`): Spark, Ray, Polars, DuckDB."""

from hokical.integrations.arrow._predictor import BatchPredictor

__all__ = ["BatchPredictor"]
