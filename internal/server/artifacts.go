package server

import (
	"context"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/fault"
)

// collectEvery is the pause between deletions of bytes that no artifact refers to. One of all servers does them. The pause is
// long, because such bytes only take up space.
const collectEvery = 10 * time.Minute

// storeArtifacts opens the configured blob store and returns the artifacts in it.
func (s *Server) storeArtifacts(ctx context.Context, dir *directory, database *db.DB) (*artifact.Artifacts, error) {
	store, err := s.blobStore(ctx, dir, database)
	if err != nil {
		return nil, err
	}
	return artifact.New(artifact.Config{
		DB: database, Blobs: store, Logger: s.logger, MaxSize: s.cfg.ArtifactMaxSize, Quota: s.cfg.ArtifactQuota, PersonQuota: s.cfg.PersonArtifactQuota,
	}), nil
}

// blobStore opens the configured store.
func (s *Server) blobStore(ctx context.Context, dir *directory, database *db.DB) (blob.Store, error) {
	set := s.cfg.BlobStore
	if set == "" {
		if set = directoryStore; s.cfg.DatabaseURL != "" {
			set = postgresStore // several servers may share the database, and all of them reach this store
		}
	}
	if set == postgresStore {
		return blob.InPostgres(database), nil
	}
	if set == directoryStore {
		set = dir.join("blobs")
	}
	if !strings.HasPrefix(set, blob.S3Prefix) {
		store, err := blob.OpenDirectory(set)
		if err == nil {
			s.onStop(func(context.Context) error { return store.Close() })
		}
		return store, err
	}
	store, err := blob.OpenS3(set)
	if err != nil {
		return nil, err
	}
	go s.checkStore(context.WithoutCancel(ctx), store, set)
	return store, nil
}

// checkStore warns if a store cannot be reached, which must not keep the server from its other work.
func (s *Server) checkStore(ctx context.Context, store *blob.S3, set string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := store.Check(ctx); err != nil {
		s.logger.WarnContext(ctx, "artifacts cannot be stored now", "blob_store", set, "error", fault.From(err).Detail())
	}
}
