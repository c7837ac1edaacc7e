package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// Requests tell which pod answered when, and count what failed.
func TestRequests(t *testing.T) {
	var n atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch i := n.Add(1); {
		case i <= 10:
			fmt.Fprintf(w, "pod=a node=cluster1-node1 ips=10.1.1.1 from=%s\n", r.RemoteAddr)
		case i <= 20:
			http.Error(w, "draining", http.StatusServiceUnavailable)
		default:
			fmt.Fprintf(w, "pod=b node=cluster2-node1 ips=10.2.1.1 from=%s\n", r.RemoteAddr)
		}
	}))
	defer server.Close()
	first := 0
	got := requestAll(t.Context(), server.URL, 40, 0, 5*time.Millisecond, time.Second, func() { first++ })
	a := got.Answers["pod=a node=cluster1-node1 ips=10.1.1.1"]
	b := got.Answers["pod=b node=cluster2-node1 ips=10.2.1.1"]
	if first != 1 {
		t.Errorf("%d first answers", first)
	}
	if got.Sent != 40 || got.Failed != 10 || len(got.FailedAt) != 10 || got.Errors["503 Service Unavailable"] != 10 {
		t.Errorf("sent and failed: %+v", got)
	}
	if len(got.Answers) != 2 || a == nil || b == nil || a.Count != 10 || b.Count != 20 {
		t.Fatalf("answers: %+v", got.Answers)
	}
	if a.Last >= b.Last || got.FailedAt[0] < 45 || got.LongestGap < 45 {
		t.Errorf("a answered until %d ms, b until %d ms, requests failed from %d ms on, no answer for %f ms", a.Last,
			b.Last, got.FailedAt[0], got.LongestGap)
	}
}

func TestRequestsReason(t *testing.T) {
	got := requestAll(t.Context(), "http://127.0.0.1:1/", 3, 0, time.Millisecond, time.Second, nil)
	if got.Failed != 3 || got.Errors["dial tcp 127.0.0.1:1: connect: connection refused"] != 3 {
		t.Errorf("%+v", got)
	}
}

// Requests end with an answer if one is enough.
func TestRequestsUntilAnswered(t *testing.T) {
	var n atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) < 5 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	before := time.Now().UnixMilli()
	got := requestAll(t.Context(), server.URL, 1000, 1, 20*time.Millisecond, time.Second, nil)
	if got.Failed != 4 || got.Sent > 7 || len(got.Answers) != 1 || got.Started < before || got.LastFailed < 60 {
		t.Errorf("%+v", got)
	}
}
