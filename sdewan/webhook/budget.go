package webhook

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// Anyone who reaches the pod can send requests: API servers do not authenticate themselves unless
// they are configured to. So the memory that requests take is bounded.
const (
	// budgetOfAll is the maximum number of bytes of bodies that are read or answered at a time, and
	// budgetOfOne is the maximum for one address. While a body is read, it takes about two and a
	// half times its size; the limit of the pod is 512 MiB.
	budgetOfAll = 64 << 20
	budgetOfOne = 16 << 20
	// maxBody is the maximum size of a body, as in controller-runtime. A body of unknown length
	// counts as one of this size.
	maxBody = 7 << 20
	// readTime is the time that a client has to send a body. API servers do not wait longer for the
	// answer (timeoutSeconds of the webhooks).
	readTime = 5 * time.Second
)

// budget is the memory for the bodies of requests.
type budget struct {
	mu  sync.Mutex
	all int64
	of  map[string]int64 // by address of the client
}

func newBudget() *budget { return &budget{of: map[string]int64{}} }

// bound returns a handler that refuses the requests that do not fit into the budget.
func (b *budget) bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := r.ContentLength
		client := r.RemoteAddr
		if size < 0 || size > maxBody {
			size = maxBody
		}
		if host, _, err := net.SplitHostPort(client); err == nil {
			client = host
		}
		if !b.reserve(client, size) {
			w.Header().Set("Connection", "close")
			http.Error(w, "the webhook answers too many large requests: try again", http.StatusServiceUnavailable)
			return
		}
		defer b.release(client, size)
		// not supported by recorders of tests
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTime))
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// reserve reports whether there was enough memory, and reserves it.
func (b *budget) reserve(client string, size int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all+size > budgetOfAll || b.of[client]+size > budgetOfOne {
		return false
	}
	b.all += size
	b.of[client] += size
	return true
}

func (b *budget) release(client string, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= size
	if b.of[client] -= size; b.of[client] == 0 {
		delete(b.of, client)
	}
}
