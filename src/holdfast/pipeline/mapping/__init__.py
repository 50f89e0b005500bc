"""From records to rows: inference, coercion, drift and DDL of a column mapping."""
