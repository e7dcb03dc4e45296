package web

import (
	"net/http"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// fileNames answers the menu of a text with the files of a folder of a thread's sandbox. If no sandbox runs, or there is no such
// folder, the menu has none.
func (a *app) fileNames(w http.ResponseWriter, r *http.Request) error {
	v := filesView{}
	pieces, err := a.services.sandboxes.ReadSandboxPath(r.Context(), &arbev1.ReadSandboxPathRequest{
		ThreadId: r.PathValue("thread"), Path: strings.ToValidUTF8(r.URL.Query().Get("path"), "\uFFFD"), MaxBytes: 1,
	})
	if err != nil {
		return err
	}
	defer pieces.Close()
	if pieces.Receive() && pieces.Msg().File.GetKind() == "folder" {
		v.List = pieces.Msg()
	} else if err := pieces.Err(); err != nil && !slices.Contains([]fault.Code{fault.Precondition, fault.Unavailable, fault.Exhausted, fault.NotFound, fault.Invalid}, faultOf(err).Code) {
		return err
	}
	return a.show(w, r, http.StatusOK, fileCompletions(v))
}
