"""`make demo-weather`: the weather at the hour of departure, with Avro from a registry, checked row by row."""
