package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"time"

	"subctl/lab/pki"
)

// waitReady polls /readyz until it says ok.
func waitReady(ctx context.Context, server string, keys *pki.Set, ended <-chan error) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: keys.Pool, Certificates: []tls.Certificate{keys.Admin}},
		DisableKeepAlives: true,
	}}
	deadline := time.After(3 * time.Minute)
	for {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return errors.New("the API server is not ready after 3 minutes: see its log above")
		case <-time.After(50 * time.Millisecond):
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			continue
		}
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return nil
		}
	}
}

// withParent ends the context when this process is adopted by another, which means that its parent
// is gone. The kernel's own way (PR_SET_PDEATHSIG) watches the parent's *thread*: a Go test that
// starts us from a goroutine locked to a thread would take us down with that goroutine.
func withParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	go func() {
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
		cancel()
	}()
	return ctx, cancel
}
