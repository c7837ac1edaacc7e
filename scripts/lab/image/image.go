// Package image writes container images without a registry or a daemon: an OCI image layout in a
// tar file, which containerd imports as it is. The same content gives the same bytes: times are
// zero, owners are root, names are sorted.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Image describes an image to write.
type Image struct {
	Name       string   // NAME:TAG
	Layers     []string // directories, or FILE=/PATH for a single executable; each becomes a layer, later ones on top
	Entrypoint []string
	Env        []string
}

// Write makes the tar file, at once: a reader never finds half of it.
func Write(file string, img Image) (err error) {
	if _, tag, ok := strings.Cut(img.Name[strings.LastIndex(img.Name, "/")+1:], ":"); !ok || tag == "" {
		return fmt.Errorf("image name %q has no tag: NAME:TAG is wanted", img.Name)
	}
	out, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file))
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	if err := errors.Join(write(out, img), out.Chmod(0o644), out.Close()); err != nil {
		return fmt.Errorf("writing image %s: %w", file, err)
	}
	return os.Rename(out.Name(), file)
}

func write(out io.Writer, img Image) error {
	w := layout{tar: tar.NewWriter(out), seen: map[digest.Digest]bool{}}
	config := ocispec.Image{
		Platform: ocispec.Platform{Architecture: runtime.GOARCH, OS: "linux"},
		Config:   ocispec.ImageConfig{Entrypoint: img.Entrypoint, Env: img.Env},
		RootFS:   ocispec.RootFS{Type: "layers"},
	}
	manifest := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
	}
	for _, source := range img.Layers {
		layer, err := pack(source)
		if err != nil {
			return fmt.Errorf("packing %s: %w", source, err)
		}
		d := w.blob(ocispec.MediaTypeImageLayer, layer)
		manifest.Layers = append(manifest.Layers, d)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, d.Digest) // not compressed, so the same
	}
	manifest.Config = w.json(ocispec.MediaTypeImageConfig, config)
	top := w.json(ocispec.MediaTypeImageManifest, manifest)
	top.Annotations = map[string]string{
		"io.containerd.image.name": img.Name,
		ocispec.AnnotationRefName:  img.Name[strings.LastIndex(img.Name, ":")+1:],
	}
	index, err := json.Marshal(ocispec.Index{
		Versioned: specs.Versioned{
			SchemaVersion: 2,
		}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{top},
	})
	if err != nil {
		return err
	}
	w.file(ocispec.ImageLayoutFile, []byte(`{"imageLayoutVersion":"`+ocispec.ImageLayoutVersion+`"}`))
	w.file(ocispec.ImageIndexFile, index)
	return errors.Join(w.err, w.tar.Close())
}

// layout writes the files of an OCI layout and remembers the first mistake.
type layout struct {
	tar  *tar.Writer
	seen map[digest.Digest]bool
	err  error
}

func (w *layout) file(name string, b []byte) {
	if w.err == nil {
		w.err = w.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(b)), Typeflag: tar.TypeReg})
	}
	if w.err == nil {
		_, w.err = w.tar.Write(b)
	}
}

func (w *layout) blob(mediaType string, b []byte) ocispec.Descriptor {
	d := digest.NewDigestFromBytes(digest.SHA256, sum(b))
	if !w.seen[d] {
		w.seen[d] = true
		w.file(filepath.Join(ocispec.ImageBlobsDir, "sha256", d.Encoded()), b)
	}
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(b))}
}

func (w *layout) json(mediaType string, v any) ocispec.Descriptor {
	b, err := json.Marshal(v)
	if err != nil && w.err == nil {
		w.err = err
	}
	return w.blob(mediaType, b)
}

func sum(b []byte) []byte {
	s := sha256.Sum256(b)
	return s[:]
}

// pack makes a layer of a directory, or of one executable.
func pack(source string) ([]byte, error) {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	var err error
	if file, at, ok := strings.Cut(source, "="); ok {
		at = strings.TrimPrefix(at, "/")
		// With the directories above it: without them they get whatever mode the unpacker likes.
		for i, c := range at {
			if c == '/' && err == nil {
				err = tw.WriteHeader(&tar.Header{Name: at[:i+1], Mode: 0o755, Typeflag: tar.TypeDir})
			}
		}
		if err == nil {
			err = packFile(tw, file, at, 0o755)
		}
	} else {
		err = packDir(tw, source)
	}
	return buf.Bytes(), errors.Join(err, tw.Close())
}

func packDir(tw *tar.Writer, root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch mode := info.Mode(); {
		case mode.IsDir():
			header, err := tar.FileInfoHeader(info, "") // for the sticky bit of /tmp
			if err != nil {
				return err
			}
			return tw.WriteHeader(&tar.Header{Name: name + "/", Mode: header.Mode, Typeflag: tar.TypeDir})
		case mode&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return tw.WriteHeader(&tar.Header{Name: name, Mode: 0o777, Typeflag: tar.TypeSymlink, Linkname: to})
		case mode.IsRegular():
			return packFile(tw, path, name, int64(mode.Perm()))
		default:
			return fmt.Errorf("%s is neither file, directory nor link: an image here has no use for it", path)
		}
	})
}

func packFile(tw *tar.Writer, file, name string, mode int64) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := tw.WriteHeader(&tar.Header{
		Name:     name,
		Mode:     mode,
		Size:     int64(len(b)),
		Typeflag: tar.TypeReg,
	}); err != nil {
		return err
	}
	_, err = tw.Write(b)
	return err
}
