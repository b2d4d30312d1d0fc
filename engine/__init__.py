"""The engine: keyed signal waits, and the runs that wait for them. It knows neither devices nor doors."""
