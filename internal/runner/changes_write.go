package runner

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// staged is the folder for complete new files on their way into a working tree, below .git if that is a folder.
const staged = "arbe-staged"

// write changes the files of the working tree from one tree of the separate repository to another, whose differences are
// list. A file is either as before or as after, even if the process is killed: new contents are written to other files
// first, and then renamed. Deletions come first, because a folder may take the place of a file, or a file that of a folder.
func (c *changes) write(ctx context.Context, before, after string, list []changed) error {
	// The dry run checks everything: changed files, new files in the way, and links that lead elsewhere.
	if said, err := c.run(ctx, "read-tree", "-m", "-u", "--dry-run", before, after); err != nil {
		return inTheWay(said, err)
	}
	root, err := os.OpenRoot(c.tree.work)
	if err != nil {
		return err
	}
	defer root.Close()
	stage := "." + staged
	if info, err := root.Lstat(".git"); err == nil && info.IsDir() {
		stage = ".git/" + staged
	}
	defer func() { _ = root.RemoveAll(stage) }() // the next use removes it, too
	if err := root.RemoveAll(stage); err != nil {
		return err
	}
	if err := root.Mkdir(stage, 0o700); err != nil {
		return err
	}
	names := written(list)
	if err := c.checkOut(ctx, stage, after, names); err != nil {
		return err
	}
	if err := removeDeleted(root, list); err != nil {
		return err
	}
	return place(root, stage, names)
}

// written returns the files that are not deleted.
func written(list []changed) (names []string) {
	for _, f := range list {
		if f.letter != "D" {
			names = append(names, f.path)
		}
	}
	return names
}

// checkOut writes files of a tree to the stage.
func (c *changes) checkOut(ctx context.Context, stage, after string, names []string) error {
	if _, err := c.tree.own(ctx, nil, "read-tree", after); err != nil {
		return err
	}
	if len(names) == 0 {
		return nil
	}
	_, err := c.tree.own(ctx, []byte(strings.Join(names, "\x00")), "checkout-index", "--prefix="+filepath.Join(c.tree.work, stage)+"/", "-z", "--stdin")
	return err
}

// removeDeleted removes files, and the folders that become empty.
func removeDeleted(root *os.Root, list []changed) error {
	for _, f := range list {
		if f.letter != "D" {
			continue
		}
		if err := root.Remove(f.path); err != nil && !os.IsNotExist(err) {
			return err
		}
		for dir := path.Dir(f.path); dir != "." && root.Remove(dir) == nil; dir = path.Dir(dir) {
		}
	}
	return nil
}

// place moves files from the stage to their places.
func place(root *os.Root, stage string, names []string) error {
	for _, name := range names {
		if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
			return err
		}
		if info, err := root.Lstat(name); err == nil && info.IsDir() {
			if err := root.Remove(name); err != nil { // git has checked that it is empty
				return err
			}
		}
		if err := root.Rename(stage+"/"+name, name); err != nil {
			return err
		}
	}
	return nil
}
