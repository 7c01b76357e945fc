"""Models that travel: saved without pickle, or exported to ONNX."""

from frhsic.persistence._onnx import export_onnx
from frhsic.persistence._saved import load, save

__all__ = ["export_onnx", "load", "save"]
