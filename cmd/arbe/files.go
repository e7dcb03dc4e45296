package main

import (
	"errors"
	"io"
	"mime"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
)

// filesFlag adds --file, which names files to send with a message.
func filesFlag(cmd *cobra.Command, paths *[]string) {
	cmd.Flags().StringArrayVar(paths, "file", nil, "`PATH` of a file to send with it; may be given up to 10 times")
}

// filesAt returns the files at some paths, after checking that they can be read.
func filesAt(paths []string) ([]arbe.File, error) {
	if len(paths) > entry.MaxAttachments {
		return nil, fault.Newf(fault.Invalid, "send the others with another message", "--file is given %d times, and a message may have %d files", len(paths), entry.MaxAttachments)
	}
	var files []arbe.File
	for _, path := range paths {
		f, err := openFile(path)
		if err != nil {
			return nil, err
		}
		f.Close() //nolint:errcheck // it was opened only to check
		files = append(files, arbe.File{Name: filepath.Base(path), MediaType: mime.TypeByExtension(filepath.Ext(path)), Open: func() (io.ReadCloser, error) { return openFile(path) }})
	}
	return files, nil
}

// openFile opens a file for reading.
func openFile(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err == nil {
		var info os.FileInfo
		if info, err = f.Stat(); err == nil && info.IsDir() {
			err = errors.New("it is a directory")
		}
		if err == nil {
			return f, nil
		}
		f.Close() //nolint:errcheck // it is not used
	}
	return nil, fault.Newf(fault.Invalid, "name a file that you may read", "cannot read %s", path).Because(err)
}
