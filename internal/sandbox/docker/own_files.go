package docker

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox"
	"github.com/arbe-dev/arbe/internal/sandbox/remote"
	"github.com/arbe-dev/arbe/internal/sandbox/remote/protocol"
)

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

// secretMode is the mode of [protocol.SecretFolder]. The mount point has it too, because runtimes give that mode to the file system
// when a container is started again.
const secretMode = 0o775

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
