package gitdoor

import (
	"context"
	"net/http"

	"github.com/arbe-dev/arbe/internal/fault"
)

// ServeToken answers a request that shows a token. Unless it is empty, only is the only house whose tokens are accepted. Git first
// asks without a token, to find out that it needs one.
func (d *Door) ServeToken(w http.ResponseWriter, r *http.Request, only string) {
	house, environment, err := d.identify(r.Context(), r)
	if err == nil && only != "" && house != only {
		err = fault.New(fault.Forbidden, "this is the token of a sandbox of another house", "use the sandbox's own")
	}
	if err != nil {
		if fault.CodeOf(err) == fault.Unauthenticated {
			w.Header().Set("WWW-Authenticate", `Basic realm="arbe"`)
		}
		d.refuse(w, r, err, fault.CodeOf(err).HTTPStatus())
		return
	}
	d.Serve(w, r, house, environment)
}

// identify returns the house and the environment of the sandbox whose token a request shows.
func (d *Door) identify(ctx context.Context, r *http.Request) (house, environment string, err error) {
	_, token, shown := r.BasicAuth()
	if !shown || d.config.Tokens == nil {
		return "", "", fault.New(fault.Unauthenticated, "only git in sandboxes may ask here", "use git in a sandbox whose environment has a credential for the host")
	}
	house, box, err := d.config.Tokens.read(token)
	if err != nil {
		return "", "", fault.New(fault.Unauthenticated, "the token of this sandbox is not valid any more", "run another command in the sandbox, which renews it").Because(err)
	}
	environment, err = d.config.Environment(ctx, house, box)
	return house, environment, err
}
