# The suite with a whole one-machine HPC site around it: for evaluation and integration, not for
# production. `docker compose up` builds and runs it; docs/contributors/containers.md has the rest.

# Debian 12 or newer, or an image that has its packages.
ARG BASE=debian:bookworm-slim
FROM ${BASE}

WORKDIR /opt/headgate

# The secrets are optional. They let a build take packages from a mirror, and trust its
# certificate, without a word of it in the image or its history. (Debian's images keep their
# sources in debian.sources: the mirror's take their place.)
COPY testbed/setup testbed/setup
RUN --mount=type=secret,id=apt.conf,target=/etc/apt/apt.conf.d/99-build \
    --mount=type=secret,id=apt.sources,target=/etc/apt/sources.list.d/debian.sources \
    testbed/setup/packages.sh python slurm login containers \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* /var/log/headgate-setup.log

# The site makes its own environment with the packages that constraints/ pins; what makes it needs
# some of them itself, in an environment that goes again.
COPY . .
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=certificates,target=/run/secrets/certificates \
    --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /tmp/first \
 && /tmp/first/bin/pip install -q --require-hashes -r constraints/base.txt \
 && /tmp/first/bin/pip install -q --no-deps --no-build-isolation . \
 && /tmp/first/bin/python -c 'import asyncio; from testbed import venv; \
      asyncio.run(venv.ensure_venv(venv.repository()))' \
 && ln -s /srv/headgate-testbed/venv-*-* .venv \
 && rm -rf /tmp/first

ENV PATH=/opt/headgate/.venv/bin:$PATH
HEALTHCHECK --interval=10s --timeout=10s --start-period=2m CMD ["python", "-m", "testbed", "status"]
CMD ["python", "-m", "testbed.foreground", "--by-way-of", "docker compose exec -T site"]
