package agent

import (
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"subctl/agent/role"
)

// refusals notes which writes of a tolerant report the API server refuses. The zero value is ready
// to use.
type refusals struct {
	mu    sync.Mutex
	known role.Refused
}

// list returns what is refused now.
func (r *refusals) list(now time.Time) role.Refused {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = r.known.Since(now)
	return r.known
}

// tolerate returns a function that writes an object. A refusal is noted and logged, and no error.
func (r *refusals) tolerate(log *slog.Logger, write func(role.Object) error) func(role.Object) error {
	return func(o role.Object) error {
		err := write(o)
		if err != nil && !isRefusal(err) {
			return err
		}
		if err != nil {
			log.Warn("the API server refuses a write, which is tried again", "error", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.known = r.known.With(o, err, time.Now())
		return nil
	}
}

// isRefusal reports whether the API server has understood a request, and does not do it. A
// registry that has no free address for a Service reports an internal error.
func isRefusal(err error) bool {
	switch apierrors.ReasonForError(err) {
	case "Unknown", "", "Unauthorized", "Timeout", "ServerTimeout", "TooManyRequests", "ServiceUnavailable":
		return false
	}
	return true
}
