# The image of subctl's agents: the static binary, and iptables and ipset as Debian built them (scripts/image/rootfs.sh says what).
# `make image` writes the same content without Docker.
#
#   docker build -t localhost/subctl:dev --build-arg VERSION=$(git describe --tags --always) .
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X subctl/internal/version.Version=$VERSION" -o /subctl .

FROM debian:12-slim AS tools
RUN apt-get update && apt-get install -y --no-install-recommends iptables ipset
COPY scripts/image/rootfs.sh /
RUN /rootfs.sh /rootfs

FROM scratch
COPY --from=tools /rootfs /
COPY --from=build /subctl /usr/local/bin/subctl
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENTRYPOINT ["/usr/local/bin/subctl"]
