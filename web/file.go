package web

import (
	"context"

	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

const (
	// shownWidth and shownHeight limit an image in the log, in pixels, and shownImage the bytes of one that is loaded for it.
	shownWidth, shownHeight, shownImage = 480, 320, 20 << 20
	// maxLookups is how many artifacts are looked up for a piece of the log, to say which were deleted. Others are taken to be
	// there; a browser shows the names of images that it cannot load.
	maxLookups = 40
)

// fileView is a file that belongs to a chat.
type fileView struct {
	Artifact, Name, Size string
	// Width and Height are those in which an image is shown; 0 for what is not.
	Width, Height int
	// Gone reports that the artifact was deleted.
	Gone bool
}

// filesOf returns the files of a chat.
func (t *transcript) filesOf(ctx context.Context, c entry.Chat) (files []fileView) {
	for _, a := range c.Attachments {
		f := fileView{Artifact: a.ArtifactID, Name: clip(a.Title(), maxWord), Size: entry.FileSize(a.Size)}
		if a.IsImage() && a.Size <= shownImage {
			scale := min(1, shownWidth/float64(a.Width), shownHeight/float64(a.Height))
			f.Width, f.Height = max(int(float64(a.Width)*scale), 1), max(int(float64(a.Height)*scale), 1)
		}
		if t.lookups < maxLookups {
			t.lookups++
			_, err := t.services.artifacts.GetArtifact(ctx, &arbev1.GetArtifactRequest{Id: a.ArtifactID})
			f.Gone = connect.CodeOf(err) == connect.CodeNotFound
		}
		files = append(files, f)
	}
	return files
}

// imagePath is where a browser gets an artifact that is an image, to be shown. It is no image by any other path.
func imagePath(id string) string { return artifactPath(id) + "/image" }
