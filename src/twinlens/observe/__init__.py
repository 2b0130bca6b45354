"""What operators see: metrics now, traces and structured logs later."""
