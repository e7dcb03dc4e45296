drop function artifact_bytes;
