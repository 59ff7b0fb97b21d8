/* Does what a script says, to see whether it ends: the cases of deadlocks.txt, beside this file.
 *
 *   mpiexec -n 2 script deadlocks.txt head-to-head-large
 *
 * Each rank finds the case of that name and in it the line that begins with its number; steps are parted by `;`. Rank 0
 * prints one line of JSON at the end. */
#include "common.h"

enum { MOST = 4 << 20, REQUESTS = 16, WORDS = 16 };

static char *data, *room[REQUESTS];
static MPI_Request requests[REQUESTS];

static int number(const char *word) {
    char *end;
    if (!word) DIE("a number is missing");
    if (strcmp(word, "*") == 0) return -2;
    long value = strtol(word, &end, 10);
    if (*end || end == word || value < 0 || value > MOST) DIE("%s is no number that is meant", word);
    return (int)value;
}

static int source(const char *word) { return number(word) == -2 ? MPI_ANY_SOURCE : number(word); }
static int tag(const char *word) { return number(word) == -2 ? MPI_ANY_TAG : number(word); }

static int request(const char *word) {
    int r = number(word);
    if (r < 0 || r >= REQUESTS) DIE("%s is no request", word);
    return r;
}

static void *room_of(int r) {
    if (!room[r]) room[r] = malloc(MOST);
    if (!room[r]) DIE("no memory");
    return room[r];
}

static void step(char **w, int words) {
    MPI_Comm c = MPI_COMM_WORLD;
    MPI_Status *s = MPI_STATUS_IGNORE;
    MPI_Datatype b = MPI_BYTE;
    if (strcmp(w[0], "send") == 0) MPI_Send(data, number(w[2]), b, number(w[1]), number(w[3]), c);
    else if (strcmp(w[0], "ssend") == 0) MPI_Ssend(data, number(w[2]), b, number(w[1]), number(w[3]), c);
    else if (strcmp(w[0], "isend") == 0) MPI_Isend(data, number(w[2]), b, number(w[1]), number(w[3]), c, requests + request(w[4]));
    else if (strcmp(w[0], "issend") == 0) MPI_Issend(data, number(w[2]), b, number(w[1]), number(w[3]), c, requests + request(w[4]));
    else if (strcmp(w[0], "recv") == 0) MPI_Recv(room_of(0), MOST, b, source(w[1]), tag(w[2]), c, s);
    else if (strcmp(w[0], "irecv") == 0)
        MPI_Irecv(room_of(request(w[3])), MOST, b, source(w[1]), tag(w[2]), c, requests + request(w[3]));
    else if (strcmp(w[0], "sendrecv") == 0)
        MPI_Sendrecv(data, number(w[2]), b, number(w[1]), number(w[3]), room_of(0), MOST, b, source(w[4]), tag(w[5]), c, s);
    else if (strcmp(w[0], "probe") == 0) MPI_Probe(source(w[1]), tag(w[2]), c, s);
    else if (strcmp(w[0], "wait") == 0) MPI_Wait(requests + request(w[1]), s);
    else if (strcmp(w[0], "waitall") == 0) {
        MPI_Request some[WORDS];
        for (int i = 1; i < words; i++) some[i - 1] = requests[request(w[i])];
        MPI_Waitall(words - 1, some, MPI_STATUSES_IGNORE);
        for (int i = 1; i < words; i++) requests[request(w[i])] = some[i - 1];
    } else if (strcmp(w[0], "waitsome") == 0 || strcmp(w[0], "startall") == 0) {
        MPI_Request some[WORDS];
        int count, at[WORDS], starts = w[0][0] == 's';
        for (int i = 1; i < words; i++) some[i - 1] = requests[request(w[i])];
        if (starts) MPI_Startall(words - 1, some);
        else MPI_Waitsome(words - 1, some, &count, at, MPI_STATUSES_IGNORE);
        for (int i = 1; i < words; i++) requests[request(w[i])] = some[i - 1];
    } else if (strcmp(w[0], "sendinit") == 0)
        MPI_Send_init(data, number(w[2]), b, number(w[1]), number(w[3]), c, requests + request(w[4]));
    else if (strcmp(w[0], "ssendinit") == 0)
        MPI_Ssend_init(data, number(w[2]), b, number(w[1]), number(w[3]), c, requests + request(w[4]));
    else if (strcmp(w[0], "recvinit") == 0)
        MPI_Recv_init(room_of(request(w[3])), MOST, b, source(w[1]), tag(w[2]), c, requests + request(w[3]));
    else if (strcmp(w[0], "start") == 0) MPI_Start(requests + request(w[1]));
    else if (strcmp(w[0], "free") == 0) MPI_Request_free(requests + request(w[1]));
    else if (strcmp(w[0], "barrier") == 0) MPI_Barrier(c);
    else if (strcmp(w[0], "bcast") == 0) MPI_Bcast(data, number(w[2]), b, number(w[1]), c);
    else if (strcmp(w[0], "allreduce") == 0) MPI_Allreduce(data, room_of(1), number(w[1]), b, MPI_BOR, c);
    else if (strcmp(w[0], "sleep") == 0) usleep((useconds_t)number(w[1]) * 1000);
    else DIE("%s is no step", w[0]);
}

static void steps(char *line) {
    char *rest_of_line;
    for (char *one = strtok_r(line, ";\n", &rest_of_line); one; one = strtok_r(NULL, ";\n", &rest_of_line)) {
        char *words[WORDS] = {0}, *rest;
        int count = 0;
        for (char *w = strtok_r(one, " ", &rest); w && count < WORDS - 1; w = strtok_r(NULL, " ", &rest)) words[count++] = w;
        if (count > 0) step(words, count);
    }
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 3) DIE("script FILE CASE");
    data = calloc(MOST, 1);
    if (!data) DIE("no memory");
    for (int i = 0; i < REQUESTS; i++) requests[i] = MPI_REQUEST_NULL;
    FILE *file = fopen(argv[1], "r");
    if (!file) DIE("cannot read %s", argv[1]);
    char line[1024], name[64];
    int in_case = 0, found = 0;
    while (fgets(line, sizeof line, file)) {
        int n = 0, own, begin = 0;
        if (sscanf(line, "= %63s %d", name, &n) == 2) {
            in_case = strcmp(name, argv[2]) == 0;
            if (in_case && n != size) DIE("%s is for %d ranks", name, n);
            found |= in_case;
        } else if (in_case && sscanf(line, "%d:%n", &own, &begin) == 1 && own == rank) {
            steps(line + begin);
        }
    }
    fclose(file);
    if (!found) DIE("no case %s", argv[2]);
    MPI_Finalize();
    if (rank == 0) printf("{\"program\":\"script\",\"case\":\"%s\"}\n", argv[2]);
    return 0;
}
