package web

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// maxFileText limits how much of a file is shown, in bytes.
const maxFileText = 256 << 10

// tree is a thread with the working tree of its sandbox. Failed, if not nil, is why the tree cannot be looked at.
type tree struct {
	Layout layout
	Thread *arbev1.Thread
	Failed *fault.Error
}

func (t tree) status() int {
	if t.Failed != nil {
		return httpStatus(t.Failed)
	}
	return http.StatusOK
}

// filesView is a folder or a file. A file that is not Binary has its text as HTML. Part reports that this is only its beginning.
type filesView struct {
	tree
	List         *arbev1.ReadSandboxPathResponse
	HTML         string
	Lines        int
	Binary, Part bool
}

// treeChangesView are the changes in a tree.
type treeChangesView struct {
	diffView
	tree
	Changes *arbev1.GetSandboxChangesResponse
}

// crumb is a folder or file on the way to a path.
type crumb struct{ Name, Path string }

// crumbs returns the way from the working tree to what is shown, without the tree itself.
func (v filesView) crumbs() (list []crumb) {
	at := v.List.GetFile().GetName()
	if at == "." || at == "" {
		return nil
	}
	end := 0
	for name := range strings.SplitSeq(at, "/") {
		end += len(name)
		list = append(list, crumb{literalName(name), at[:end]})
		end++
	}
	return list
}

// below returns the path of a file of the folder; empty if its name cannot be asked for.
func (v filesView) below(name string) string {
	switch at := v.List.GetFile().GetName(); {
	case strings.ContainsRune(name, '\uFFFD'):
		return ""
	case at == ".":
		return name
	default:
		return at + "/" + name
	}
}

// name returns the title of what is shown.
func (v filesView) name() string {
	if list := v.crumbs(); len(list) > 0 {
		return list[len(list)-1].Name
	}
	return "Files"
}

// lineNumbers returns the numbers of the lines, each on its own line.
func (v filesView) lineNumbers() string {
	b := make([]byte, 0, 7*v.Lines)
	for n := range v.Lines {
		b = append(strconv.AppendInt(b, int64(n)+1, 10), '\n')
	}
	return string(b)
}

// fileMark returns what follows the name of a file in a list, by its kind.
func fileMark(kind string) string {
	return map[string]string{"folder": "/", "link": " (link)", "special": " (no regular file)"}[kind]
}

// folderMark returns what follows the name of a folder in a text.
func folderMark(kind string) string {
	if kind == "folder" {
		return "/"
	}
	return ""
}

// leftOut says how many files a patch leaves out.
func leftOut(n int) string {
	if n == 1 {
		return "One file or folder is left out, because it is too large or cannot be read."
	}
	return grouped(n) + " files and folders are left out, because they are too large or cannot be read."
}

func filesPath(thread, name string) string {
	if name == "" {
		return threadPath(thread) + "/files"
	}
	return threadPath(thread) + "/files?path=" + url.QueryEscape(name)
}

func downloadPath(thread, name string) string {
	return threadPath(thread) + "/files/download?path=" + url.QueryEscape(name)
}

func treeChangesPath(thread string) string { return threadPath(thread) + "/diff" }
