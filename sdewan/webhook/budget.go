package webhook

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// Anybody who reaches the pod can send requests: API servers prove nothing about themselves, unless they are configured to. So what is
// in memory of requests is bounded.
const (
	// budgetOfAll is the number of bytes of bodies that are read or answered at a time, and budgetOfOne is the same of one address. A body
	// takes about two and a half times as many bytes of memory while it is read; the limit of the pod is 512 MiB.
	budgetOfAll = 64 << 20
	budgetOfOne = 16 << 20
	// largest is the largest body that is read: that of controller-runtime. A body of unknown length counts as much.
	largest = 7 << 20
	// readTime is how long a client may take to send a body; API servers wait for the answer no longer (timeoutSeconds of the webhooks).
	readTime = 5 * time.Second
)

// budget refuses requests that do not fit into memory.
type budget struct {
	next http.Handler

	mu  sync.Mutex
	all int64
	of  map[string]int64 // by address of the client
}

func newBudget(next http.Handler) *budget { return &budget{next: next, of: map[string]int64{}} }

// ServeHTTP implements http.Handler.
func (b *budget) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	size, client := r.ContentLength, r.RemoteAddr
	if size < 0 || size > largest {
		size = largest
	}
	if host, _, err := net.SplitHostPort(client); err == nil {
		client = host
	}
	if !b.take(client, size) {
		w.Header().Set("Connection", "close")
		http.Error(w, "the webhook answers too many large requests: try again", http.StatusServiceUnavailable)
		return
	}
	defer b.take(client, -size)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTime)) // not supported by recorders of tests
	r.Body = http.MaxBytesReader(w, r.Body, largest)
	b.next.ServeHTTP(w, r)
}

// take reserves memory, or releases it if size is negative. It reports whether there was enough.
func (b *budget) take(client string, size int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if size > 0 && (b.all+size > budgetOfAll || b.of[client]+size > budgetOfOne) {
		return false
	}
	b.all += size
	if b.of[client] += size; b.of[client] == 0 {
		delete(b.of, client)
	}
	return true
}
