drop table blob_chunks, artifacts, blobs, blob_garbage;
drop function discard_blob, discard_upload, collect_blobs, due_blobs, forget_blob;
