package server

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/db"
	"github.com/arbe-dev/arbe/internal/artifact"
	"github.com/arbe-dev/arbe/internal/blob"
	"github.com/arbe-dev/arbe/internal/dispatch"
	"github.com/arbe-dev/arbe/internal/fault"
)

// collectEvery is how often one of all servers deletes bytes that no artifact refers to. It may be rare, because such
// bytes only take up space.
const collectEvery = 10 * time.Minute

// The blob stores that have names. The others are addresses.
const (
	directoryStore = "directory"
	postgresStore  = "postgres"
)

// storeArtifacts opens the configured blob store and returns the artifacts in it.
func (s *Server) storeArtifacts(ctx context.Context, dir *directory, database *db.DB) (*artifact.Artifacts, error) {
	store, err := s.blobStore(ctx, dir, database)
	if err != nil {
		return nil, err
	}
	c := artifact.Config{DB: database, Blobs: store, Logger: s.logger}
	if c.MaxSize, c.Quota, err = s.cfg.artifactLimits(); err != nil {
		return nil, err
	}
	return artifact.New(c), nil
}

// blobStore opens the configured store.
func (s *Server) blobStore(ctx context.Context, dir *directory, database *db.DB) (blob.Store, error) {
	set := s.cfg.BlobStore
	if set == "" {
		if set = directoryStore; s.cfg.DatabaseURL != "" {
			set = postgresStore // because there may be several servers, and all reach this store
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
	go func() { // a store that cannot be reached must not keep the server from its other work
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if err := store.Check(ctx); err != nil {
			s.logger.WarnContext(ctx, "artifacts cannot be stored now", "blob_store", set, "error", fault.From(err).Detail())
		}
	}()
	return store, nil
}

// checkArtifacts returns what is wrong with the settings about artifacts, so that it is known before the start.
func (c Config) checkArtifacts() error {
	if s := c.BlobStore; strings.HasPrefix(s, blob.S3Prefix) {
		if _, err := blob.OpenS3(s); err != nil {
			return err
		}
	} else if s != "" && s != directoryStore && s != postgresStore && !strings.HasPrefix(s, "/") {
		return fault.Newf(fault.Invalid, "use directory, postgres, s3://bucket/prefix?endpoint=https://host, or the absolute path of a directory", "blob_store: there is no store %q", s)
	}
	if _, _, err := c.artifactLimits(); err != nil {
		return err
	}
	_, err := c.spoolSize()
	return err
}

func (c Config) spoolSize() (int64, error) {
	return parseSize("spool_size", c.SpoolSize, dispatch.DefaultSpoolSize)
}

// artifactLimits returns ArtifactMaxSize and ArtifactQuota in bytes.
func (c Config) artifactLimits() (maxSize, quota int64, err error) {
	if maxSize, err = parseSize("artifact_max_size", c.ArtifactMaxSize, artifact.DefaultMaxSize); err != nil {
		return 0, 0, err
	}
	quota, err = parseSize("artifact_quota", c.ArtifactQuota, artifact.DefaultQuota)
	return maxSize, quota, err
}

// parseSize returns the bytes of a size such as "100MiB"; otherwise if text is empty.
func parseSize(setting, text string, otherwise int64) (int64, error) {
	if text == "" {
		return otherwise, nil
	}
	number, unit := text, int64(1)
	for suffix, bytes := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if before, found := strings.CutSuffix(text, suffix); found {
			number, unit = before, bytes
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n <= 0 || n > 1<<62/unit {
		return 0, fault.Newf(fault.Invalid, "write it as 100MiB", "%s: %q is not a size", setting, text)
	}
	return n * unit, nil
}
