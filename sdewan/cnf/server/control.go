package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"subctl/sdewan/rest"
)

// reportTime is the time that reading a status may take.
const reportTime = 10 * time.Second

// control answers a request for what is not a collection. parts is the path after sdewan/v1.
func (s *Server) control(w *answer, r *http.Request, parts []string) {
	switch {
	case len(parts) == 0:
		s.help(w, r)
	case len(parts) == 1 && parts[0] == "services":
		if get(w, r) {
			w.json(http.StatusOK, map[string]any{"services": rest.ServiceNames})
		}
	case len(parts) == 2 && (parts[0] == "service" || parts[0] == "services"): // the latter in upstream's documentation
		s.service(w, r, parts[1])
	case len(parts) == 1 && parts[0] == "status":
		s.status(w, r, Modules...)
	case len(parts) == 2 && parts[0] == "status":
		if !slices.Contains(Modules, parts[1]) {
			w.message(http.StatusBadRequest, "Bad request URI: "+parts[1]+" is not supported")
			return
		}
		s.status(w, r, parts[1])
	default:
		w.message(http.StatusNotFound, "Not Found")
	}
}

func get(w *answer, r *http.Request) bool {
	if r.Method != http.MethodGet {
		w.message(http.StatusMethodNotAllowed, "Method Not Allowed")
	}
	return r.Method == http.MethodGet
}

func (s *Server) help(w *answer, r *http.Request) {
	if get(w, r) {
		w.message(http.StatusOK, "sdewan restful API service v1")
	}
}

// service starts or stops a service. What it was told before stays.
func (s *Server) service(w *answer, r *http.Request, name string) {
	switch {
	case r.Method != http.MethodPut:
		w.message(http.StatusMethodNotAllowed, "Method Not Allowed")
		return
	case !slices.Contains(rest.ServiceNames, name):
		w.message(http.StatusBadRequest, "Bad request URI")
		return
	}
	b, ok := body(w, r)
	if !ok {
		return
	}
	var request struct {
		Action string `json:"action"`
	}
	if err := decode(b, &request); err != nil {
		w.message(http.StatusBadRequest, "Body parse error: "+err.Error())
		return
	}
	switch request.Action {
	case "start", "restart", "reload", "stop":
	case "":
		w.message(http.StatusBadRequest, "Field[action] checked failed: required")
		return
	default:
		w.message(http.StatusBadRequest,
			"Field[action] checked failed: wrong action: use start, stop, restart or reload")
		return
	}
	if err := s.Store.stop(name, request.Action == "stop"); err != nil {
		s.refuse(w, err)
		return
	}
	s.changed(r, "service/"+name+" "+request.Action)
	w.message(http.StatusOK, "success")
}

// status answers with what modules report: with a list if there are several, in which a module that
// cannot report has an error instead.
func (s *Server) status(w *answer, r *http.Request, modules ...string) {
	if !get(w, r) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), reportTime)
	defer cancel()
	// which costs little, and which the controller needs before it starts the CNF
	if !slices.Equal(modules, []string{"effect"}) {
		select {
		case s.reports <- struct{}{}:
			defer func() { <-s.reports }()
		case <-ctx.Done():
			w.message(http.StatusServiceUnavailable, "other requests for the status take too long")
			return
		}
	}
	type named struct {
		Name   string `json:"name"`
		Status any    `json:"status,omitempty"`
		Error  string `json:"error,omitempty"`
	}
	var all []named
	for _, m := range modules {
		report, err := s.Status(ctx, m)
		n := named{Name: m, Status: report}
		if err != nil {
			s.Log.Warn("reading the status", "module", m, "err", err)
			n = named{Name: m, Error: "reading the status of " + m + " failed: see the log of the CNF"}
		}
		all = append(all, n)
	}
	switch {
	case len(modules) == 1 && all[0].Error != "":
		w.message(http.StatusInternalServerError, all[0].Error)
	case len(modules) > 1:
		w.json(http.StatusOK, all)
	case modules[0] == "interface_status": // of LuCI, which does not name it
		w.json(http.StatusOK, all[0].Status)
	default:
		w.json(http.StatusOK, all[0])
	}
}
