package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/containerd/containerd/v2/cmd/containerd/command"
	"github.com/containerd/containerd/v2/cmd/ctr/app"
	"k8s.io/component-base/cli"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
	_ "k8s.io/component-base/logs/json/register"
)

// Upstream's commands read os.Args, so each gets its own name back.

func runKubelet(args []string) error {
	os.Args = append([]string{"kubelet"}, args...)
	os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
	return nil
}

func runKubeProxy(args []string) error {
	os.Args = append([]string{"kube-proxy"}, args...)
	os.Exit(cli.Run(kubeproxy.NewProxyCommand()))
	return nil
}

func runContainerd(args []string) error {
	return command.App().Run(append([]string{"containerd"}, args...))
}

func runCtr(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return app.New().RunContext(ctx, append([]string{"ctr"}, args...))
}
