drop function person_artifact_bytes;
