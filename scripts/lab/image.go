package main

import (
	"github.com/spf13/cobra"

	"subctl/lab/image"
)

func newImage() *cobra.Command {
	var img image.Image
	cmd := &cobra.Command{
		Use:   "image --rootfs DIR --tag NAME:TAG --entrypoint PATH OUT.tar",
		Short: "Write a container image",
		Long: `Writes an image FROM scratch, as an OCI layout in a tar file that lab load-image, ctr and others import. Each --rootfs is a layer:
a directory, or FILE=/PATH for one executable. What changes often belongs into a layer of its own, given last.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return image.Write(args[0], img) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&img.Layers, "rootfs", nil, "a layer: a directory, or FILE=/PATH (repeatable)")
	f.StringVar(&img.Name, "tag", "", "NAME:TAG")
	f.StringSliceVar(&img.Entrypoint, "entrypoint", nil, "what it runs: PATH[,ARG]...")
	f.StringArrayVar(&img.Env, "env", []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/"},
		"environment")
	for _, required := range []string{"rootfs", "tag", "entrypoint"} {
		cmd.MarkFlagRequired(required)
	}
	return cmd
}
