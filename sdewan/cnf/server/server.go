// Package server is the REST API of our CNF: the login, the paths, codes and shapes that clients of
// OpenWrt with the packages of ICN SD-EWAN expect, and the store of what they have created.
//
// It programs nothing: sdewan/cnf/agent reads Store.Config, plans and applies it, and reports what
// the CNF does through Options. It differs from OpenWrt where that loses or leaks something: every
// path needs a session, names are unique, a request that is refused changes nothing, and an object
// that is replaced keeps its place in the order of rules.
package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"subctl/sdewan/rest"
)

// Options are the settings and the functions that a Server needs. All fields are required unless
// stated otherwise.
type Options struct {
	Store *Store
	// Password returns the password of the user root. Nobody can log in while it fails, or returns
	// "".
	Password func() (string, error)
	// Devices returns the devices to which objects may refer. Optional: without it, they may refer
	// to any.
	Devices func() *rest.Devices
	// Changed is called after every change of the Store, and after every request to restart a
	// service. It must not block.
	Changed func()
	// Status returns what a module reports, for encoding as JSON.
	Status func(ctx context.Context, module string) (any, error)
	// Ready reports whether what the Store has is applied, for the probe.
	Ready func() bool
	Log   *slog.Logger
	// Now is time.Now unless a test replaces it. Optional.
	Now func() time.Time
}

// Modules are the modules that report a status.
var Modules = []string{"conntrack", "effect", "interface", "ipsec", "neighbour", "route", "rule", "wan"}

// Server is the REST API.
type Server struct {
	Options
	logins  *logins
	reports chan struct{} // has an element for each status that is being read
}

// maxReports is the maximum number of statuses that are read at once: some are large.
const maxReports = 2

// New returns a Server.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Server{Options: o, logins: newLogins(o.Now), reports: make(chan struct{}, maxReports)}
}

// Handler returns the handler of the API, for connections with TLS.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serve(&answer{w, s.Log}, r)
	})
}

// Probe returns the handler for connections without TLS. It answers GET / with 200, or with 503
// until the CNF is ready, and nothing else.
func (s *Server) Probe() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.probe(&answer{w, s.Log}, r)
	})
}

func (s *Server) probe(w *answer, r *http.Request) {
	switch {
	case r.URL.Path != "/":
		w.message(http.StatusNotFound, "Not Found: the API needs HTTPS")
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.message(http.StatusMethodNotAllowed, "Method Not Allowed")
	case !s.Ready():
		w.message(http.StatusServiceUnavailable, "the configuration is not applied yet")
	default:
		w.message(http.StatusOK, "ready")
	}
}

// serve answers a request.
func (s *Server) serve(w *answer, r *http.Request) {
	parts, ok := split(r.URL.EscapedPath())
	switch {
	case !ok:
		w.message(http.StatusBadRequest, "Bad request URI")
	case len(parts) == 0:
		s.probe(w, r)
	case len(parts) < 2 || parts[0] != "cgi-bin" || parts[1] != "luci":
		w.message(http.StatusNotFound, "Not Found")
	case len(parts) == 2 && r.Method == http.MethodPost:
		s.login(w, r)
	case !s.logins.valid(r):
		// Upstream's client logs in again at 403, and only then.
		w.Header().Set("X-LuCI-Login-Required", "yes")
		w.message(http.StatusForbidden, "Forbidden: log in, as the session is missing or has expired")
	default:
		s.dispatch(w, r, parts[2:])
	}
}

// split returns the parts of a path. Empty parts do not count: clients end some paths with a slash.
func split(path string) (parts []string, ok bool) {
	for _, p := range strings.Split(path, "/") {
		p, err := url.PathUnescape(p)
		if err != nil {
			return nil, false
		}
		if p != "" {
			parts = append(parts, p)
		}
	}
	return parts, true
}

// dispatch answers a request of a session. parts is the path after /cgi-bin/luci.
func (s *Server) dispatch(w *answer, r *http.Request, parts []string) {
	switch r.Method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete:
	default:
		w.Header().Set("Allow", "GET, POST, PUT, DELETE")
		w.message(http.StatusMethodNotAllowed, "Method Not Allowed")
		return
	}
	at := func(i int) string {
		if i < len(parts) {
			return parts[i]
		}
		return ""
	}
	switch path := strings.Join(parts, "/"); {
	case path == "admin/logout":
		s.logins.end(r)
		w.message(http.StatusOK, "success")
	case path == "admin/status/mwan/interface_status":
		s.status(w, r, "interface_status")
	case at(0) != "sdewan":
		w.message(http.StatusNotFound, "Not Found")
	case at(1) == "v1":
		s.control(w, r, parts[2:])
	case at(2) != "v1" || !module(at(1)):
		w.message(http.StatusNotFound, "Not Found")
	case len(parts) == 3:
		s.help(w, r)
	case rest.Lookup(at(1), at(3)) == nil:
		w.message(http.StatusNotFound, "Not Found: "+at(1)+" has no "+at(3))
	case len(parts) > 5:
		w.message(http.StatusBadRequest, "Bad request URI")
	default:
		s.objects(w, r, rest.Lookup(at(1), at(3)), at(4))
	}
}

// module reports whether a module has collections.
func module(name string) bool {
	for _, l := range rest.Collections {
		if l.Module == name {
			return true
		}
	}
	return false
}

// answer writes an answer.
type answer struct {
	http.ResponseWriter
	log *slog.Logger
}

// json answers with a value.
func (w *answer) json(code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store") // some objects have secrets
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		w.log.Debug("answering", "err", err) // the client is gone
	}
}

// message answers with a text.
func (w *answer) message(code int, text string) {
	w.json(code, map[string]string{"message": text})
}
