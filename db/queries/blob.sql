-- Owner: internal/blob. The bytes of blobs when the blob store is Postgres.

-- name: PutChunk :exec
insert into blob_chunks (house_id, blob_id, start, data) values (@house_id, @blob_id, @start, @data);

-- name: ChunkAt :one
-- The chunk that contains the byte at a position, or else the last chunk before it.
select start, data from blob_chunks where house_id = @house_id and blob_id = @blob_id and start <= @position
order by start desc limit 1;

-- name: DeleteChunks :exec
delete from blob_chunks where house_id = @house_id and blob_id = @blob_id;
