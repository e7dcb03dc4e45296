package arbe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// File is a file to send with a message.
type File struct {
	// Name is the name that people see, and MediaType the declared type. Both may be empty.
	Name, MediaType string
	// Open returns the content from the beginning. It is called once.
	Open func() (io.ReadCloser, error)
}

// Attach stores files as artifacts of a thread and returns their ids in order, for a SayRequest. entry is the id of the entry
// that will name them: repeating the call with the same id and the same files stores nothing twice. If entry is empty, each
// call stores them again. After an error, the files before the failed one are artifacts of the thread. The errors are those of
// File.Open and [Client.PutArtifact].
func (c *Client) Attach(ctx context.Context, thread, entry string, files []File) (ids []string, err error) {
	for i, f := range files {
		id, err := c.attach(ctx, thread, entry, i, f)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (c *Client) attach(ctx context.Context, thread, entry string, n int, f File) (string, error) {
	content, err := f.Open()
	if err != nil {
		return "", err
	}
	defer content.Close() //nolint:errcheck // it was only read
	req := &arbev1.CreateArtifactRequest{Scope: &arbev1.CreateArtifactRequest_ThreadId{ThreadId: thread}, Label: f.Name, MimeType: f.MediaType}
	if entry != "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "attachment %d of entry %q of thread %q", n, entry, thread))
		req.Id = hex.EncodeToString(sum[:16])
	}
	made, err := c.PutArtifact(ctx, req, io.NopCloser(content))
	return made.GetId(), err
}
