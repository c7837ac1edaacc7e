// Package kubeapi asks an API server the few questions the lab has. It is a hundred lines of HTTP
// because client-go would make the small binary a large one.
package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"subctl/lab/pki"
	"subctl/lab/plan"
)

// Client speaks to one cluster as its administrator.
type Client struct {
	server string
	http   *http.Client
}

// New takes the keys from the cluster's directory.
func New(clusterDir, server string) (*Client, error) {
	keys, err := pki.Load(clusterDir)
	if err != nil {
		return nil, err
	}
	return &Client{server: server, http: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: keys.Pool, Certificates: []tls.Certificate{keys.Admin}},
	}}}, nil
}

// Ready says whether the API server answers and is ready.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodGet, "/readyz", nil, nil)
	return err
}

// EnsureNode makes the Node object of a node that may not have started yet, with its pod CIDR
// fixed: so the CNI configuration and the routes to its pods need not wait for anybody. The kubelet
// adopts it.
func (c *Client) EnsureNode(ctx context.Context, n plan.Node) error {
	return c.ensure(ctx, "/api/v1/nodes", m{
		"apiVersion": "v1", "kind": "Node",
		"metadata": m{"name": n.Name(), "labels": m{"kubernetes.io/hostname": n.Name()}},
		"spec":     m{"podCIDR": n.Pods().String(), "podCIDRs": []string{n.Pods().String()}},
	})
}

type m = map[string]any

// ensure creates an object unless there is one of its name.
func (c *Client) ensure(ctx context.Context, path string, object m) error {
	// A Service with a fixed address is not refused as a duplicate, but because its address is
	// taken.
	name, _ := object["metadata"].(m)["name"].(string)
	status, err := c.do(ctx, http.MethodGet, path+"/"+name, nil, nil)
	if status != http.StatusNotFound {
		return err
	}
	status, err = c.do(ctx, http.MethodPost, path, object, nil)
	if status == http.StatusConflict {
		return nil
	}
	return err
}

// at is an object, and where objects of its kind are created.
type at struct {
	path   string
	object m
}

func (c *Client) ensureAll(ctx context.Context, all ...at) error {
	for _, o := range all {
		if err := c.ensure(ctx, o.path, o.object); err != nil {
			return err
		}
	}
	return nil
}

// NodeReady says whether the kubelet has reported the node Ready after a moment. What an earlier
// kubelet said does not count.
func (c *Client) NodeReady(ctx context.Context, name string, since time.Time) (bool, error) {
	var node struct {
		Status struct {
			Conditions []struct {
				Type, Status      string
				LastHeartbeatTime time.Time
			}
		}
	}
	if _, err := c.do(ctx, http.MethodGet, "/api/v1/nodes/"+name, nil, &node); err != nil {
		return false, err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" {
			// Kubernetes writes whole seconds.
			return condition.Status == "True" && !condition.LastHeartbeatTime.Before(since.Truncate(time.Second)), nil
		}
	}
	return false, nil
}

// CanCreatePods says whether the default service account is there: it comes 2 s after the API
// server is ready, and until then pods are refused.
func (c *Client) CanCreatePods(ctx context.Context) (bool, error) {
	status, err := c.do(ctx, http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", nil, nil)
	if status == http.StatusNotFound {
		return false, nil
	}
	return err == nil, err
}

func (c *Client) do(ctx context.Context, method, path string, body, answer any) (status int, err error) {
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		payload = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, payload)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return response.StatusCode, err
	}
	if response.StatusCode/100 != 2 {
		return response.StatusCode, fmt.Errorf("%s %s%s: %s: %.300s", method, c.server, path, response.Status, b)
	}
	if answer != nil {
		return response.StatusCode, json.Unmarshal(b, answer)
	}
	return response.StatusCode, nil
}
