package web

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// artifacts is a page of a thread's artifacts, newest first. Older is the token of the next page; empty on the last one.
type artifacts struct {
	Thread string
	List   []*arbev1.Artifact
	Older  string
}

// maxStrip limits the artifacts below the head of a thread, and maxDocument how much of a document is shown, in bytes.
const maxStrip, maxDocument = 6, 1 << 20

// documentView is an artifact that is Markdown, as HTML.
type documentView struct {
	Layout   layout
	Artifact *arbev1.Artifact
	HTML     string
}

func documentPath(artifact string) string { return "/documents/" + url.PathEscape(artifact) }

// isDocument reports whether an artifact is shown as Markdown, and isPicture whether it is shown as an image.
func isDocument(a *arbev1.Artifact) bool {
	kind, _, _ := strings.Cut(a.MimeType, ";")
	ext := strings.ToLower(path.Ext(a.Label))
	return a.HasBytes && !isPatch(a) && (kind == "text/markdown" || ext == ".md" || ext == ".markdown")
}

func isPicture(a *arbev1.Artifact) bool {
	return a.HasBytes && slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, a.MimeType)
}

// externalOf returns the address of an artifact that is elsewhere, such as a pull request; empty if it has none.
func externalOf(a *arbev1.Artifact) string {
	address, err := url.Parse(a.ExternalId)
	if err != nil || address.Scheme != "https" && address.Scheme != "http" || address.Host == "" {
		return ""
	}
	return address.String()
}

// artifactIcon returns the icon of an artifact.
func artifactIcon(a *arbev1.Artifact) string {
	switch {
	case isPatch(a):
		return "fork"
	case !a.HasBytes:
		return "link"
	}
	return "clip"
}

// artifactName returns an artifact's title.
func artifactName(a *arbev1.Artifact) string {
	for _, name := range []string{a.Label, a.ExternalId} {
		if name != "" {
			return name
		}
	}
	return a.Kind + " " + a.Id
}

// downloadWords says which part of a command's output can be downloaded.
func downloadWords(r *entry.CommandResult) string {
	if r.ArtifactPart {
		return "Download the first " + bytesText(r.ArtifactBytes)
	}
	return "Download all " + bytesText(r.ArtifactBytes)
}

// isPatch reports whether an artifact is shown as a patch.
func isPatch(a *arbev1.Artifact) bool {
	if !a.HasBytes {
		return false
	}
	kind, _, _ := strings.Cut(a.MimeType, ";")
	return a.Kind == "patch" || kind == "text/x-diff" || kind == "text/x-patch" || isPatchName(a.Label)
}

func isPatchName(name string) bool {
	ext := strings.ToLower(path.Ext(name))
	return ext == ".patch" || ext == ".diff"
}
