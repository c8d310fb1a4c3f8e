"""Values as typed columns: JSON, Avro and Protobuf, with a schema registry or without."""
