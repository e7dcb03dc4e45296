package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"io/fs"
	"net"
	"path"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/client"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

// checkImage refuses an image that environments may not name. The operator's default image is always allowed.
func (p *provider) checkImage(image string) error {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return fault.Newf(fault.Invalid, "write it as debian:13, or as registry/repository:tag", "%.200q is not the name of an image", image).Because(err)
	}
	if len(p.cfg.Images) == 0 || image == p.cfg.Image {
		return nil
	}
	for _, allowed := range p.cfg.Images {
		prefix, open := strings.CutSuffix(allowed, "*")
		if name := reference.FamiliarName(named); name == allowed || open && strings.HasPrefix(name, prefix) {
			return nil
		}
	}
	return fault.Newf(fault.Precondition, "use one of: "+strings.Join(p.cfg.Images, ", "), "the operator does not allow the image %s", image)
}

// checkRegistry refuses an image whose registry is not on the public internet, such as one on the engine's own machine,
// unless the operator names it. The engine resolves the name itself and follows the registry's redirects, which this check
// cannot see.
func (p *provider) checkRegistry(ctx context.Context, image string) error {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return explain(ctx, err)
	}
	registry := reference.Domain(named)
	if len(p.cfg.Images) > 0 || image == p.cfg.Image || registry == dockerHub {
		return nil
	}
	host := registry
	if name, _, err := net.SplitHostPort(registry); err == nil {
		host = name
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CallLimit)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", strings.Trim(host, "[]"))
	if err != nil {
		return fault.Newf(fault.Precondition, "check its name, or ask the operator to name it in the setting docker_images", "the registry %s cannot be found", registry).Because(err)
	}
	for _, ip := range addresses {
		if !outbound.Public(ip) {
			return fault.Newf(fault.Precondition, "use a registry with a public address, or ask the operator to name its images in the setting docker_images",
				"the registry %s is not on the public internet", registry)
		}
	}
	return nil
}

// dockerHub is the registry of images that do not name one.
const dockerHub = "docker.io"

// pull fetches an image unless the engine already has it.
func (p *provider) pull(ctx context.Context, image string) error {
	_, err := p.inspectImage(ctx, image)
	if !errdefs.IsNotFound(err) {
		return explain(ctx, err)
	}
	if err := p.checkRegistry(ctx, image); err != nil {
		return err
	}
	progress, err := p.engine.ImagePull(ctx, image, client.ImagePullOptions{})
	if err == nil {
		err = progress.Wait(ctx)
		progress.Close()
	}
	return explainPull(ctx, image, err)
}

func (p *provider) inspectImage(ctx context.Context, image string) (client.ImageInspectResult, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CallLimit)
	defer cancel()
	return p.engine.ImageInspect(ctx, image)
}

// explainPull returns why an image could not be pulled. It searches the text, because the engine passes on the messages of
// registries as text only.
func explainPull(ctx context.Context, image string, err error) error {
	if err == nil || ctx.Err() != nil {
		return explain(ctx, err)
	}
	says := func(words ...string) bool {
		for _, word := range words {
			if strings.Contains(strings.ToLower(err.Error()), word) {
				return true
			}
		}
		return false
	}
	switch {
	case client.IsErrConnectionFailed(err), says(noSpace):
		return explain(ctx, err)
	case says("denied", "unauthorized", "authentication required", "no basic auth"):
		return fault.Newf(fault.Precondition, "check its name, or ask the operator to log in and pull it on the engine's machine",
			"the image %s does not exist, or its registry requires a login", image).Because(err)
	case says("not found", "manifest unknown", "no matching manifest", "name unknown"):
		return fault.Newf(fault.Precondition, "check its name and tag", "there is no image %s for this machine", image).Because(err)
	}
	return fault.Newf(fault.Unavailable, "try again later, or ask the operator to pull it on the engine's machine", "the image %s cannot be fetched", image).Because(err)
}

// The user that commands run as. Process 1 runs as another user, so that no command can read or limit it.
const (
	userID  = 1000
	firstID = 65534
)

// ownFolder holds programs that commands cannot modify, and firstPath is that of process 1.
const (
	ownFolder = "/.arbe"
	firstPath = ownFolder + "/keeper"
)

// ownPath returns the path in [ownFolder] of a keeper.
func ownPath(keeper remote.Program) string { return ownFolder + "/" + path.Base(keeper.Path) }

// processors maps the architecture names of images to those of uname.
var processors = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// ownFiles returns an archive of the files that every box needs besides its image: the user's directories and the keeper.
func ownFiles(keeper remote.Program) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	add := func(name string, kind byte, mode fs.FileMode, owner int, link string, content []byte) error {
		err := w.WriteHeader(&tar.Header{
			Name: strings.TrimPrefix(name, "/"), Typeflag: kind, Mode: int64(mode), Uid: owner, Gid: owner, Linkname: strings.TrimPrefix(link, "/"),
			Size: int64(len(content)), ModTime: time.Unix(0, 0),
		})
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	}
	for _, entry := range []struct {
		name    string
		kind    byte
		mode    fs.FileMode
		owner   int
		link    string
		content []byte
	}{
		{ownFolder + "/", tar.TypeDir, 0o755, 0, "", nil},
		{firstPath, tar.TypeReg, 0o555, 0, "", keeper.Text},
		{ownPath(keeper), tar.TypeLink, 0o555, 0, firstPath, nil},
		{"/run/", tar.TypeDir, 0o755, 0, "", nil},
		{protocol.SecretFolder + "/", tar.TypeDir, secretMode, 0, "", nil},
		{"/home/", tar.TypeDir, 0o755, 0, "", nil},
		{"/var/", tar.TypeDir, 0o755, 0, "", nil},
		{"/var/lib/", tar.TypeDir, 0o755, 0, "", nil},
		{sandbox.Workspace + "/", tar.TypeDir, 0o755, userID, "", nil},
		{sandbox.Home + "/", tar.TypeDir, 0o755, userID, "", nil},
		{protocol.Root + "/", tar.TypeDir, 0o700, userID, "", nil},
		{keeper.Path, tar.TypeLink, 0o555, 0, firstPath, nil},
	} {
		if err := add(entry.name, entry.kind, entry.mode, entry.owner, entry.link, entry.content); err != nil {
			return nil, err
		}
	}
	return archive.Bytes(), w.Close()
}
