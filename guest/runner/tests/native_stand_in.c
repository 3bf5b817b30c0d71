/* The zygote's library in miniature: it forks, but confines nothing.
 *
 * On its socket: 'R' when ready; for each byte with four descriptors (standard streams, control socket) one child, whose pid and
 * then wait status come back as two 32-bit integers. The rest of a request is the directory to enter.
 */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void PyOS_BeforeFork(void);
void PyOS_AfterFork_Parent(void);
void PyOS_AfterFork_Child(void);

int fumehood_zygote_init(void) { return 0; }
int fumehood_zygote_settle(void) { return 0; }

int fumehood_zygote_serve(int fd) {
    write(fd, "R", 1);
    for (;;) {
        char directory[4096] = {0};
        char room[CMSG_SPACE(4 * sizeof(int))];
        struct iovec text = {directory, sizeof directory - 1};
        struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
        if (recvmsg(fd, &message, 0) <= 0) _exit(0);
        int fds[4];
        memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fds);
        PyOS_BeforeFork();
        int32_t pid = fork();
        if (pid == 0) {
            int high[4];
            for (int i = 0; i < 4; i++) high[i] = fcntl(fds[i], F_DUPFD, 100);
            close(fd);
            for (int i = 0; i < 4; i++) close(fds[i]);
            for (int i = 0; i < 4; i++) { dup2(high[i], i); close(high[i]); }
            setsid();
            if (chdir(directory) != 0) _exit(99);
            PyOS_AfterFork_Child();
            return 0;
        }
        PyOS_AfterFork_Parent();
        for (int i = 0; i < 4; i++) close(fds[i]);
        int32_t status = 0;
        write(fd, &pid, sizeof pid);
        waitpid(pid, &status, 0);
        write(fd, &status, sizeof status);
    }
}
