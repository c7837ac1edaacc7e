package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcdAttempts is the number of times that free ports are looked for: another program may take a
// port before it is used.
const etcdAttempts = 5

// startEtcd runs etcd in this process and returns its URL.
func (c *controlPlane) startEtcd(ctx context.Context) (endpoint string, stop func(), err error) {
	for range etcdAttempts {
		client := c.etcdPort
		peer := c.etcdPort + 1
		if c.etcdPort == 0 {
			if client, peer, err = twoFreePorts(); err != nil {
				return "", nil, fmt.Errorf("finding ports for etcd: %w", err)
			}
		}
		endpoint, stop, err = c.tryEtcd(ctx, client, peer)
		if c.etcdPort != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("starting etcd in %s: %w", c.path("etcd"), err)
	}
	return endpoint, stop, nil
}

func (c *controlPlane) tryEtcd(ctx context.Context, client, peer int) (string, func(), error) {
	at := func(port int) []url.URL { return []url.URL{{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}} }
	config := embed.NewConfig()
	config.Name = c.name
	config.Dir = c.path("etcd")
	config.ListenClientUrls = at(client)
	config.AdvertiseClientUrls = at(client)
	config.ListenPeerUrls = at(peer)
	config.AdvertisePeerUrls = at(peer)
	config.InitialCluster = config.InitialClusterFromName(c.name)
	config.UnsafeNoFsync = true // a laboratory outlives no power cut, and fsync is most of a small etcd's work
	config.LogLevel = "error"
	config.AutoCompactionMode = "periodic"
	config.AutoCompactionRetention = "10m"
	server, err := embed.StartEtcd(config)
	if err != nil {
		return "", nil, err
	}
	select {
	case <-server.Server.ReadyNotify():
		u := at(client)[0]
		// Close would wait 7 s for clients that are this very process.
		return u.String(), server.Server.HardStop, nil
	case err = <-server.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(2 * time.Minute):
		err = errors.New("not ready after 2 minutes")
	}
	server.Close()
	return "", nil, err
}

func twoFreePorts() (a, b int, err error) {
	// Both are held until both are known, or they might be the same.
	var ports [2]int
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, 0, err
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports[0], ports[1], nil
}
