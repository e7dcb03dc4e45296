package web

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/arbe-dev/arbe/internal/fault"
)

// position reads a position in a log from a query. It returns 0 if the query has none.
func position(q url.Values, name string) (int64, error) {
	text := q.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fault.Newf(fault.Invalid, "use a whole number, such as 1", "%s: %q is not a position in a log", name, clip(text, 40))
	}
	return n, nil
}

// fromScript reports whether the script made the request. The script gets a piece of a page, not a whole page.
func fromScript(r *http.Request) bool { return r.Header.Get("Datastar-Request") == "true" }

// textOf returns the text of a form. Its line breaks become LF, because forms encode each as CR and LF.
func textOf(r *http.Request) string { return strings.ReplaceAll(r.PostFormValue("text"), "\r\n", "\n") }

// passing reports whether the same request may succeed later. The script then sends it again.
func passing(err error) bool {
	switch faultOf(err).Code {
	case fault.Unavailable, fault.Canceled, fault.DeadlineExceeded, fault.Internal:
		return true
	}
	return false
}

func parseForm(r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		switch f := faultOf(err); f.Code {
		case fault.Exhausted, fault.Unavailable, fault.Canceled, fault.DeadlineExceeded, fault.Unauthenticated: // these are not about the form
			return f
		}
		return fault.New(fault.Invalid, "the form cannot be read", "go back and send it again").Because(err)
	}
	return nil
}

// doneInThread answers a form whose effect arrives with the live tail.
func (a *app) doneInThread(w http.ResponseWriter, r *http.Request, err error) error {
	switch {
	case err != nil:
		return err
	case fromScript(r):
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Redirect(w, r, threadPath(r.PathValue("thread")), http.StatusSeeOther)
	}
	return nil
}
